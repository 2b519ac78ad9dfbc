"""The federation over gRPC: the protocol (federation.proto), the service, the agent, their certificates."""
