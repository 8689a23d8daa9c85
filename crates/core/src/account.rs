//! On whose account a call is made: what it reaches beyond this host is theirs to answer for.
//!
//! The gate says so around every call. Where nobody has said it, it is nobody's who may more than
//! others.

/// Who answers for what is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// Whoever runs this host.
    Operator,
    /// The owner of what a caller with a key, or from another host, makes.
    Other(String),
}

tokio::task_local! {
    static CURRENT: Account;
}

/// Does something on an account, which [`current`] then says.
pub async fn on<T>(account: Account, work: impl Future<Output = T>) -> T {
    CURRENT.scope(account, work).await
}

/// The account of the call that is being made.
pub fn current() -> Account {
    let nobody = |_| Account::Other(String::new());
    CURRENT.try_with(Clone::clone).unwrap_or_else(nobody)
}

impl Account {
    /// That of an owner of things: users of this host can open its socket, so they run it.
    pub fn of_owner(owner: &str) -> Account {
        match owner.starts_with("uid:") {
            true => Account::Operator,
            false => Account::Other(owner.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_nobody_answers_for_is_not_the_operators() {
        assert_eq!(current(), Account::Other(String::new()));
        let operator = on(Account::Operator, async { current() }).await;
        assert_eq!(operator, Account::Operator);
        // Work of its own has no caller any more.
        let spawned = on(Account::Operator, tokio::spawn(async { current() }));
        assert_eq!(spawned.await.unwrap(), Account::Other(String::new()));
        assert_eq!(Account::of_owner("uid:0"), Account::Operator);
        for owner in ["project:uid", "remote", ""] {
            assert_eq!(Account::of_owner(owner), Account::Other(owner.to_string()));
        }
    }
}
