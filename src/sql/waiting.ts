import { named, type Statement } from './statements'

/**
 * Cancels what a backend waits with, if it waits for one of others, also by way of third ones. Parameters: its process
 * id, and theirs. Gives true where it does.
 */
export const cancelWaiting: Statement<true> = named(
  `WITH RECURSIVE blocking (pid) AS (
  SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids($1::pg_catalog.int4))
  UNION
  SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids(pid)) FROM blocking
)
SELECT pg_catalog.pg_cancel_backend($1::pg_catalog.int4)
WHERE EXISTS (SELECT FROM blocking WHERE pid OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.int4[]))`,
  () => true,
)
