"""HTTP surface: FastAPI and wires; knows no scores, SQL or vendors."""
