"""Create the table of plans that were run."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Take the step."""
    op.create_table(
        "trials",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("result_id", sa.Uuid(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("report", sa.JSON(none_as_null=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
    )
    op.create_index(op.f("ix_trials_result_id"), "trials", ["result_id"])


def downgrade() -> None:
    """Take it back."""
    op.drop_index(op.f("ix_trials_result_id"), table_name="trials")
    op.drop_table("trials")
