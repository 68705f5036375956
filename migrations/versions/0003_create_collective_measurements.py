"""Create the table of measured collectives."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Take the step."""
    op.create_table(
        "collective_measurements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("profile_run_id", sa.Integer(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("ranks_per_node", sa.Integer(), nullable=False),
        sa.Column("payload_bytes", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("spread_seconds", sa.Double(), nullable=True),
        sa.Column("dtype", sa.String(), nullable=True),
        sa.Column("algorithm", sa.String(), nullable=True),
        sa.Column("intra_link", sa.String(), nullable=True),
        sa.Column("inter_link", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("source_ref", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["profile_run_id"],
            ["profile_runs.id"],
            name=op.f("fk_collective_measurements_profile_run_id_profile_runs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_collective_measurements")),
    )
    op.create_index(
        op.f("ix_collective_measurements_profile_run_id_operation"),
        "collective_measurements",
        ["profile_run_id", "operation"],
    )


def downgrade() -> None:
    """Take it back."""
    op.drop_index(
        op.f("ix_collective_measurements_profile_run_id_operation"), table_name="collective_measurements"
    )
    op.drop_table("collective_measurements")
