"""The policy network: its parameters as one flat vector, its forward pass, and acting."""
