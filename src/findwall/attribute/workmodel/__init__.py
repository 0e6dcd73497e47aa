"""The work model: FLOPs and bytes of an op from its recorded inputs. One file a family of ops."""

from findwall.attribute.workmodel.arguments import Part, Work
from findwall.attribute.workmodel.owners import op_work

__all__ = ["Part", "Work", "op_work"]
