"""Send long lists of topics, and messages that are larger than a frame, as references to pieces of content.

Gossip, records and heartbeats tell the topics of nodes again and again. If nodes have thousands of topics, these would
be most of the traffic, and the topics of a few such nodes do not fit into a frame. So a long list is replaced in the
message by a reference. The receiver asks once for the pieces that it lacks:

    sender                              receiver
    Packed(message, references)   ->    delivers the message at once if it has all pieces; else it waits
                                  <-    Want(digests of what is missing)
    Give(piece), Give(piece), ... ->    delivers the message

A piece is named by the digest of its content. So a piece from one peer serves for the messages of all, and no peer can
give a wrong one. A list is cut at names that are chosen by their own content, so two lists that differ in one topic
share nearly all pieces. A list of several pieces has an `Index` of them. Short lists stay in the message.

A message that waits may be overtaken by a later one, and is lost if its sender crashes meanwhile. A network may do the
same, and the protocols are tested against it: they repeat what they rely on.

P1  Whatever peers send, the pieces kept, the messages that wait and the pieces asked for are bounded.
"""

from trellis.protocols.pieces.messages import PIECES_MESSAGES, Packed, PiecesMessage
from trellis.protocols.pieces.part import Came, Pieces, PiecesEffects
from trellis.protocols.pieces.waiting import DROPPED

__all__ = ["DROPPED", "PIECES_MESSAGES", "Came", "Packed", "Pieces", "PiecesEffects", "PiecesMessage"]
