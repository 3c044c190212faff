"""Graph: the program as it was recorded, and the passes over it.

Calling a model records a node (``nodes``) and runs nothing. ``activity`` finds the nodes between
the variables and the output. ``forward`` gives each of them a task that keeps its pullback, and
``backward`` mirrors that: a task a node, in reverse order, which hands cotangents to the node's
inputs. In the calling thread ``eager`` runs models when they are called, and ``sweep`` pulls them
back. ``tangents`` records a second graph beside the first, whose models push tangents along. The
room does no arithmetic: models and values do.
"""
