import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { Client } from 'pg'
import { DataSource, type DataSourceOptions } from 'typeorm'
import { afterAll, beforeAll, expect } from 'vitest'
import { type UniqueTextDataSourceOptions, withUniqueText } from '../../src'
import { inDatabase } from './databases'

/** Makes a cluster on Debian's PostgreSQL 15; it lies beside the repository, or where CITUS_SCRIPT says. */
const SCRIPT =
  process.env['CITUS_SCRIPT'] ?? path.resolve(import.meta.dirname, '../../../shared/citus/citus-cluster.sh')
const FOLDER = '/tmp/citus'
const POSTGRES = '/usr/lib/postgresql/15/bin/postgres'

const script = existsSync(SCRIPT) ? SCRIPT : undefined

/** Makes a cluster of a test's own, whose servers it may kill; undefined where there is none. */
export const clusterScript = existsSync(POSTGRES) ? script : undefined

/** Where a cluster can be had: from CITUS_URL, its coordinator's, or by the script. */
export const hasCitus = process.env['CITUS_URL'] !== undefined || (script !== undefined && existsSync(POSTGRES))

if (!hasCitus)
  console.log('Citus: neither CITUS_URL nor PostgreSQL 15 with ../shared/citus, so these tests are skipped')

async function coordinatorUrl(): Promise<string> {
  const given = process.env['CITUS_URL']
  if (given !== undefined) return given
  if (script === undefined) throw new Error('There is no script to start a cluster with.')
  // One that runs already is left running. Files of tests start it at the same time; its servers must not inherit the lock.
  const { stdout } = await promisify(execFile)('flock', ['--close', `${FOLDER}.lock`, script, 'start', FOLDER])
  const [, url] = /^coordinator (\S+)$/m.exec(stdout) ?? []
  if (url === undefined) throw new Error(`The cluster did not start: ${stdout}`)
  return url
}

/**
 * Of every chain: a text twice, no anchor, or others beside an anchor that has no flag. OFFSET brings the rows to one node:
 * by the column that tells the shards, each shard would group its own rows, and a row on the wrong one be alone there.
 */
export function chainFaults(table: string, { scope = ['shop'], text = 'url', where = 'true' } = {}): string {
  const [hash, number, chained] = ['Hash', 'HashNumber', 'HashChained'].map((end) => `"${text}${end}"`)
  const chain = [...scope, hash].join(', ')
  return `SELECT ${chain}, count(*) - count(DISTINCT ${text}) AS twice, count(*) FILTER (WHERE ${number} = 0) AS anchors,
    bool_or(${chained}) FILTER (WHERE ${number} = 0) AS flagged
  FROM (SELECT * FROM ${table} OFFSET 0) AS all_rows WHERE ${where} GROUP BY ${chain}
  HAVING count(*) > count(DISTINCT ${text}) OR count(*) FILTER (WHERE ${number} = 0) <> 1
    OR count(*) > 1 AND NOT bool_or(${chained}) FILTER (WHERE ${number} = 0)`
}

/** A database of a cluster, and its nodes. */
export interface TestCluster {
  /** The coordinator's, then those of the workers. */
  readonly urls: () => readonly string[]
  /** @param node 0: the coordinator */
  client(node?: number): Promise<Client>
  /** Not synchronized. */
  dataSource(
    entities: DataSourceOptions['entities'],
    node?: number,
    options?: Partial<Omit<Extract<DataSourceOptions, { type: 'postgres' }>, 'type'>>,
    settings?: UniqueTextDataSourceOptions,
  ): Promise<DataSource>
}

/** One database on every node for one test file, made before its tests and dropped after them. */
export function useCluster(): TestCluster {
  const file = expect.getState().testPath ?? ''
  const name = `unique_text_${createHash('sha256').update(`${file}${process.pid}`).digest('hex').slice(0, 12)}`
  const clients: Client[] = []
  const dataSources: DataSource[] = []
  let servers: string[] = []
  let urls: string[] = []

  const connect = async (url: string): Promise<Client> => {
    const client = new Client({ connectionString: url })
    client.on('error', () => {})
    await client.connect()
    return client
  }
  const run = async (url: string, ...statements: readonly string[]): Promise<void> => {
    const client = await connect(url)
    try {
      for (const sql of statements) await client.query(sql)
    } finally {
      await client.end()
    }
  }

  beforeAll(async () => {
    const coordinator = await coordinatorUrl()
    const client = await connect(coordinator)
    const { rows } = await client.query<{ name: string; port: number }>(
      `SELECT nodename AS name, nodeport AS port FROM pg_dist_node WHERE isactive ORDER BY groupid`,
    )
    await client.end()
    servers = rows.map(({ name: host, port }) => {
      const url = new URL(coordinator)
      url.host = `${host}:${port}`
      return url.toString()
    })
    urls = servers.map((url) => inDatabase(url, name))
    for (const url of servers) {
      await run(
        url,
        'SET citus.enable_ddl_propagation = off',
        `CREATE DATABASE ${name} ENCODING 'UTF8' TEMPLATE template0`,
      )
    }
    for (const url of urls) await run(url, 'CREATE EXTENSION citus')
    const [first, ...workers] = rows
    await run(
      urls[0] ?? '',
      `SELECT citus_set_coordinator_host('${first?.name}', ${first?.port})`,
      ...workers.map(({ name: host, port }) => `SELECT citus_add_node('${host}', ${port})`),
    )
  }, 120_000)

  afterAll(async () => {
    await Promise.all(dataSources.map(async (one) => one.isInitialized && (await one.destroy())))
    await Promise.all(clients.map((client) => client.end()))
    for (const url of servers.toReversed()) {
      await run(url, 'SET citus.enable_ddl_propagation = off', `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
    }
  }, 60_000)

  return {
    urls: () => urls,
    client: async (node = 0) => {
      const client = await connect(urls[node] ?? '')
      clients.push(client)
      return client
    },
    dataSource: async (entities, node = 0, options = {}, settings) => {
      const dataSource = new DataSource({
        type: 'postgres',
        url: urls[node] ?? '',
        entities: entities ?? [],
        ...options,
      })
      if (settings) withUniqueText(dataSource, settings)
      dataSources.push(dataSource)
      return await dataSource.initialize()
    },
  }
}
