"""A run of OMen or OMen-G in cycles.  [OM §3-5]

network.py  all state of a run
events.py   joins and departures: who coordinates them, and when
repair.py   one repair: the protocol's own `Repair` or `Join`, and answers that are made from arrays

The kernels are in the folder above: pool.py, backups.py, view_state.py, build_views.py, local_views.py, wanted.py,
paths.py.
"""
