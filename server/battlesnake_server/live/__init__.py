"""The live snake: a Flask application under gunicorn that answers the Battlesnake API in time."""
