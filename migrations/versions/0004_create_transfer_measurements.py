"""Create the table of measured copies between tiers of memory."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Take the step."""
    op.create_table(
        "transfer_measurements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("profile_run_id", sa.Integer(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("payload_bytes", sa.BigInteger(), nullable=True),
        sa.Column("bytes_per_second", sa.Double(), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("source_ref", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["profile_run_id"],
            ["profile_runs.id"],
            name=op.f("fk_transfer_measurements_profile_run_id_profile_runs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transfer_measurements")),
    )
    op.create_index(
        op.f("ix_transfer_measurements_profile_run_id_operation"),
        "transfer_measurements",
        ["profile_run_id", "operation"],
    )


def downgrade() -> None:
    """Take it back."""
    op.drop_index(
        op.f("ix_transfer_measurements_profile_run_id_operation"), table_name="transfer_measurements"
    )
    op.drop_table("transfer_measurements")
