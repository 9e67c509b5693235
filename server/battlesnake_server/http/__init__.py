"""HTTP server of the live snake and of all pages.

Idle and slow connections use few resources.
"""
