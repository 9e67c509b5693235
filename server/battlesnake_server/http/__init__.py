"""The web server under the live snake and under all pages: connections that cost little."""
