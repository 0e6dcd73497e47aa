"""The work model: FLOPs and bytes of an op from its recorded inputs. One file a family of ops."""

from findwall.attribute.workmodel.owners import op_work
from findwall.attribute.workmodel.work import Part, Work

__all__ = ["Part", "Work", "op_work"]
