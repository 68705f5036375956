"""Create the table of profiles that are being sent."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Take the step."""
    op.create_table(
        "profile_chunks",
        sa.Column("upload_digest", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("body_digest", sa.String(length=64), nullable=False),
        sa.Column("rows", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("upload_digest", "number", name=op.f("pk_profile_chunks")),
    )


def downgrade() -> None:
    """Take it back."""
    op.drop_table("profile_chunks")
