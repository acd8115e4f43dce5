"""Operations on many jobs: values and pure decisions."""
