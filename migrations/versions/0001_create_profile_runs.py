"""Create the table of profiles, one row for each set of measurements."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Take the step."""
    op.create_table(
        "profile_runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("software", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("facts", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("licence", sa.String(), nullable=True),
        sa.Column("built_in", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profile_runs")),
        sa.UniqueConstraint("digest", name=op.f("uq_profile_runs_digest")),
        sa.UniqueConstraint("name", name=op.f("uq_profile_runs_name")),
    )
    op.create_index(op.f("ix_profile_runs_device"), "profile_runs", ["device"])


def downgrade() -> None:
    """Take it back."""
    op.drop_index(op.f("ix_profile_runs_device"), table_name="profile_runs")
    op.drop_table("profile_runs")
