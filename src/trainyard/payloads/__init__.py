"""The programs that run inside users' containers. `shipping` puts them into pods.

They need nothing but Python 3.8 and its standard library, since that is all that users' images are
sure to have. What each one does is in its own docstring. Folders are by subject: `launch` (launches
over ssh), `observer`, `in_place` and `node_check`. What several of them use lies beside these.
"""
