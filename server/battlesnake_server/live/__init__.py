"""The live snake: a Flask application under gunicorn that meets the deadlines of the API."""
