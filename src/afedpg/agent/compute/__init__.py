"""Native kernels: forward, backward and Adam of MLP policies and critics at the speed of one core, free of torch."""
