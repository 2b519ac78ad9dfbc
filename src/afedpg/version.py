"""The version, for who may not import the package itself."""

VERSION = "0.2.0"
