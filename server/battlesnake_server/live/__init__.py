"""The live snake: a Flask application that meets the deadlines of the API.

The application runs under gunicorn.
"""
