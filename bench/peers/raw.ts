import { createHash } from 'node:crypto'
import { Pool, type PoolClient, type QueryConfig } from 'pg'
import type { Answer, Place } from '../peer'

/** A row as our statements return it. */
interface Row {
  readonly id: number
  readonly url: string
  readonly title: string | null
  readonly created: boolean
}

type Client = Pick<PoolClient, 'query'>

export const md5 = (text: string): string => createHash('md5').update(text, 'utf8').digest('hex')

/** What each raw peer stands on: named statements, and connections that are not closed between two phases. */
export function openPool({ url, poolSize }: Place): Pool {
  const pool = new Pool({ connectionString: url, max: poolSize, idleTimeoutMillis: 0 })
  // The server of the benchmark may be stopped while the pool still closes.
  pool.on('error', () => {})
  return pool
}

/** Rows that committed after the snapshot of a statement are seen by the next one. */
const ATTEMPTS = 10

/**
 * The row of one of these statements, in turn until one returns a row.
 *
 * @throws Error if the text can be neither found nor created
 */
export async function firstRow(client: Client, statements: readonly QueryConfig[]): Promise<Answer> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    for (const statement of statements) {
      const [row] = (await client.query<Row>(statement)).rows
      if (row) return answerOf(row)
    }
  }
  throw new Error('The text can be neither found nor created.')
}

export async function found(client: Client, statement: QueryConfig): Promise<Answer | null> {
  const [row] = (await client.query<Row>(statement)).rows
  return row ? answerOf(row) : null
}

export async function inTransaction(pool: Pool, work: (client: PoolClient) => Promise<Answer>): Promise<Answer> {
  const client = await pool.connect()
  try {
    await client.query('BEGIN')
    const answer = await work(client)
    await client.query('COMMIT')
    return answer
  } catch (error) {
    await client.query('ROLLBACK')
    throw error
  } finally {
    client.release()
  }
}

const answerOf = ({ id, url, created }: Row): Answer => ({ id: String(id), text: url, created })

export function batches<Value>(values: readonly Value[], size: number): Value[][] {
  const all: Value[][] = []
  for (let start = 0; start < values.length; start += size) all.push(values.slice(start, start + size))
  return all
}
