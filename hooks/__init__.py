"""The build machine: runs the gallery and the labs, turns formulas into MathML, keeps the ledger of claims.

``gallery.py``, ``labs.py``, ``ledger.py`` and ``formulas.py`` are MkDocs hooks, named in
``mkdocs.yml``; the other files are what they are made of. ``python -m hooks`` runs the gallery without MkDocs.
"""
