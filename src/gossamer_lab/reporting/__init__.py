"""Tables, figures and documentation pages, made from result files."""
