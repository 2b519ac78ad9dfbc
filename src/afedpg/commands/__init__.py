"""Parts of the command line, one module per family of commands; argparse only, so that `--help` answers at once."""
