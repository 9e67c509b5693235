"""The rules for thousands of games at once: the engine in C and its plain form in Python."""

import pkgutil

# A SageMaker job brings these sources along, and its image the compiled part of an installation.
__path__ = pkgutil.extend_path(__path__, __name__)
