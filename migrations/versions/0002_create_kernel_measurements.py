"""Create the table of measured kernel times."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Take the step."""
    op.create_table(
        "kernel_measurements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("profile_run_id", sa.Integer(), nullable=False),
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("dtype", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("shape", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("spread_seconds", sa.Double(), nullable=True),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("source_ref", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["profile_run_id"],
            ["profile_runs.id"],
            name=op.f("fk_kernel_measurements_profile_run_id_profile_runs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kernel_measurements")),
    )
    op.create_index(
        op.f("ix_kernel_measurements_profile_run_id_operator_dtype_phase"),
        "kernel_measurements",
        ["profile_run_id", "operator", "dtype", "phase"],
    )


def downgrade() -> None:
    """Take it back."""
    op.drop_index(
        op.f("ix_kernel_measurements_profile_run_id_operator_dtype_phase"), table_name="kernel_measurements"
    )
    op.drop_table("kernel_measurements")
