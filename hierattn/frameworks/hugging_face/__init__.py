"""Hugging Face Transformers: how attention layers of its families are read, drawn, and built small from a config."""
