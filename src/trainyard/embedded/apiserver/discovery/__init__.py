"""What the server says of itself: API discovery and OpenAPI."""
