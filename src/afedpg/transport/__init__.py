"""How agents reach the server: gRPC and Ray."""
