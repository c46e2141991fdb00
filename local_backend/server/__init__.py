"""The engine over HTTP, in the OpenAI wire."""
