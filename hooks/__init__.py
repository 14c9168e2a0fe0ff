"""The build machine: runs the gallery and the labs, keeps the ledger of claims, finishes every page.

The MkDocs hooks are those that ``mkdocs.yml`` names; the other files are what they are made of.
``python -m hooks`` runs the gallery without MkDocs.
"""
