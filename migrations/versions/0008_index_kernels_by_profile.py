"""Index kernels by their profile alone, so that a million of them are counted quickly."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

INDEX = "ix_kernel_measurements_profile_run_id"


def upgrade() -> None:
    """Take the step."""
    op.create_index(op.f(INDEX), "kernel_measurements", ["profile_run_id"])


def downgrade() -> None:
    """Take it back."""
    op.drop_index(op.f(INDEX), table_name="kernel_measurements")
