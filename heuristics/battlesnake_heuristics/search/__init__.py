"""The search in C: its face, its evaluation, its games against itself."""

import pkgutil

# A SageMaker job brings these sources along, and its image the compiled part of an installation.
__path__ = pkgutil.extend_path(__path__, __name__)
