"""Operations on many jobs, and backfills, as clients ask for them."""
