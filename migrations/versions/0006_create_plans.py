"""Create the table of plans and evaluations."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Take the step."""
    op.create_table(
        "plans",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=True),
        sa.Column("request", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.CheckConstraint("kind IN ('plan', 'evaluation')", name=op.f("ck_plans_kind")),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'cancelled', 'failed')", name=op.f("ck_plans_state")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
    )
    op.create_index(op.f("ix_plans_kind_created_at"), "plans", ["kind", "created_at"])
    op.create_index(op.f("ix_plans_request_digest"), "plans", ["request_digest"])


def downgrade() -> None:
    """Take it back."""
    op.drop_index(op.f("ix_plans_request_digest"), table_name="plans")
    op.drop_index(op.f("ix_plans_kind_created_at"), table_name="plans")
    op.drop_table("plans")
