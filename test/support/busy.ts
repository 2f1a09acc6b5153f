import type { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { findOrCreate } from '../../src'
import { tableName } from '../../src/sql/text-table'
import { textsOfEntity } from '../../src/registry/registry'
import { untilBlocked } from './blocked'

/** Calls that go their ordinary way at once; the next one waits for a look-up that it shares. */
const MOST_ALONE = 8

interface Sessions {
  /** Opens a transaction and inserts the rows that the calls wait for. */
  readonly holder: Client
  readonly observer: Client
}

let used = 0

/**
 * Fills the places of the calls that go their ordinary way, for the duration of `run`: each waits for a row that another
 * session has not committed. What is called meanwhile shares look-ups.
 */
export async function whileBusy<T>(
  dataSource: DataSource,
  entity: new () => { url: string },
  { holder, observer }: Sessions,
  run: () => Promise<T>,
): Promise<T> {
  const urls = Array.from({ length: MOST_ALONE }, () => `busy ${(used += 1)}`)
  const [declaration] = textsOfEntity(dataSource.getMetadata(entity))
  if (!declaration) throw new TypeError(`${entity.name} declares no text.`)
  await holder.query('begin')
  await holder.query(`insert into ${tableName(declaration.table)} (url) select unnest($1::text[])`, [urls])
  const calls = Promise.all(urls.map(async (url) => await findOrCreate(dataSource.manager, entity, { url })))
  try {
    await untilBlocked(observer, MOST_ALONE)
    return await run()
  } finally {
    await holder.query('commit')
    await calls
  }
}
