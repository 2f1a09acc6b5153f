import type { QueryRunner } from 'typeorm'
import { savepoint, type WireRow } from '../sql/statements'

/** A statement as `pg` takes it. */
export interface PgQuery {
  readonly text: string
  readonly values?: readonly unknown[]
  readonly rowMode: 'array'
  readonly name?: string
}

/** The parts of a `pg` client that are used here. */
export interface PgClient {
  query(query: PgQuery): Promise<{ readonly rows: readonly WireRow[] }>
  end(): Promise<void>
  once(event: 'error', listener: (error: Error) => void): unknown
  /** `I` outside a transaction, `T` inside, `E` in one that has failed. */
  getTransactionStatus?(): string | null
}

const turns = new WeakMap<QueryRunner, Promise<void>>()

/**
 * Waits until the calls that came before on this query runner have had their turn; what it returns ends ours. Calls in
 * parallel in one transaction share one connection: without turns, the statement of one could fall between another's
 * failed statement and its rollback to the savepoint. No listener runs inside a turn, so none can wait for itself.
 */
export async function takeTurn(queryRunner: QueryRunner): Promise<() => void> {
  const before = turns.get(queryRunner)
  let end = (): void => {}
  turns.set(queryRunner, new Promise((resolve) => (end = resolve)))
  await before
  return end
}

type Query = (...args: readonly unknown[]) => unknown

/** Runs a statement of which an error leaves the caller's transaction as it was before. */
export async function queryOrRollBack(client: PgClient, query: PgQuery): ReturnType<PgClient['query']> {
  const hold = holdOthers(client)
  const command = (text: string): ReturnType<PgClient['query']> => hold.query({ text, rowMode: 'array' })
  try {
    await command(savepoint.set)
    const result = await hold.query(query)
    await command(savepoint.release)
    return result
  } catch (error) {
    // After 40001 and 40P01 too a savepoint can be rolled back to, but the snapshot is the same: the caller must retry.
    // On a connection that is gone the rollback fails as well; the first error says more.
    await command(savepoint.rollBack).catch(() => {})
    throw error
  } finally {
    hold.end()
  }
}

/** A client that answers nobody but us. */
interface Hold {
  readonly query: PgClient['query']
  /** Sends what others have asked meanwhile, in their order. */
  readonly end: () => void
}

/**
 * Keeps every statement but ours from the client: one of the caller's own between our savepoint and a rollback to it
 * would be undone, although the caller was told that it was done.
 */
function holdOthers(client: PgClient): Hold {
  const holder = client as unknown as { query: Query }
  const { query } = holder
  const own = Object.hasOwn(holder, 'query')
  const waiting: (() => void)[] = []
  holder.query = (...args) => {
    const now = (): unknown => query.call(client, ...args)
    const [first] = args
    const submittable = typeof first === 'object' && first !== null && 'submit' in first
    if (!submittable && !args.some(isCallback)) return new Promise((done) => waiting.push(() => done(now())))
    waiting.push(() => void now())
    return submittable ? first : undefined
  }
  return {
    query: query.bind(client) as PgClient['query'],
    end: () => {
      if (own) holder.query = query
      else Reflect.deleteProperty(holder, 'query')
      for (const send of waiting) send()
    },
  }
}

const isCallback = (argument: unknown): boolean =>
  typeof argument === 'function' ||
  (typeof argument === 'object' &&
    argument !== null &&
    'callback' in argument &&
    typeof argument.callback === 'function')

const watched = new WeakMap<QueryRunner, PgClient>()
const losses = new WeakMap<PgClient, { error?: Error }>()

/** TypeORM releases a query runner whose connection is lost, and forgets why; the caller should hear it (25P03, 57P01). */
export function watchForLoss(queryRunner: QueryRunner, client: PgClient): void {
  watched.set(queryRunner, client)
  if (losses.has(client)) return
  const loss: { error?: Error } = {}
  losses.set(client, loss)
  client.once('error', (error) => (loss.error = error))
}

export function lossOf(queryRunner: QueryRunner): Error | undefined {
  const client = watched.get(queryRunner)
  return client && losses.get(client)?.error
}
