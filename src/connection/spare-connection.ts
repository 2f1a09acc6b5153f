import type { DataSource } from 'typeorm'

/** What a pool of `pg` tells of itself, and nothing is lost where it does not. */
interface Pool {
  readonly idleCount: number
  readonly totalCount: number
  readonly waitingCount: number
  readonly options: { readonly max: number }
}

/** Somebody else waits for a connection of the pool, or it does not tell. */
export function isAwaited(dataSource: DataSource): boolean {
  return poolOf(dataSource)?.waitingCount !== 0
}

/**
 * A second connection is available without waiting for anyone else's. Of a pool that does not tell, none is: the one of
 * another driver may have no second.
 */
export function hasSpare(dataSource: DataSource): boolean {
  const pool = poolOf(dataSource)
  if (!pool || pool.waitingCount > 0) return false
  return pool.idleCount > 0 || pool.totalCount < pool.options.max
}

function poolOf({ driver }: DataSource): Pool | undefined {
  const { master } = driver as { readonly master?: unknown }
  return isPool(master) ? master : undefined
}

function isPool(pool: unknown): pool is Pool {
  if (typeof pool !== 'object' || pool === null || !('options' in pool)) return false
  const { options } = pool
  if (typeof options !== 'object' || options === null || typeof Reflect.get(options, 'max') !== 'number') return false
  return ['idleCount', 'totalCount', 'waitingCount'].every((name) => typeof Reflect.get(pool, name) === 'number')
}
