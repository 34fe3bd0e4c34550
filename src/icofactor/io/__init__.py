"""Bytes on disk: one module per format, which reads and writes it. Knows no cohort and no model.

Files may be of any origin. Sizes are checked against the file before anything is allocated, nothing
of a file is run, and no other file is opened for it. The tests compare the readers with nibabel.
"""
