"""Who may spend and who may set budgets, as the roles of a PostgreSQL: the statements that the guide shows, tried."""

import re
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from dpose.account import Budget, budget_states, budgets, charge, lift_budget, set_budget
from dpose.account.budgets import KIND, claim_window
from dpose.account.store import close_connections, opened
from refusals import refused
from stored import WARD, run_charge

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "account.md"


@pytest.fixture
def spender(postgres):
    """The URL of a role that has been granted what the guide says."""
    set_budget(Budget(8.0, 1e-5, "ward", WARD), postgres)  # the owner of the tables makes them
    (granted,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    engine = create_engine(postgres, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS researchers")
        for statement in granted.split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    url = re.sub(r"//[^@/]*@", "//researchers@", postgres)
    assert url != postgres
    yield url
    close_connections(url)
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP OWNED BY researchers CASCADE")
        connection.exec_driver_sql("DROP ROLE researchers")
    engine.dispose()


def test_a_role_that_may_spend_may_not_change_budgets(postgres, spender):
    charge(run_charge(0), spender)
    charge(run_charge(1, WARD[:5]), spender)
    assert claim_window("a" * 32, 0, spender)  # as a count does when it is shown
    with opened(spender).transaction() as account:  # as each step of a training does
        account.append(KIND, "b" * 64, {"charge": "c" * 32, "keys": {}})
    (state,) = budget_states(where=spender)
    assert len(state.charges) == 2
    with refused("account-unusable", where="row-level security"):
        set_budget(Budget(80.0, 1e-5, "ward", WARD), spender)
    with refused("account-unusable", where="row-level security"):
        lift_budget(WARD, spender)
    assert [one.epsilon for one in budgets(postgres)] == [8.0]
    assert lift_budget(WARD, postgres)
