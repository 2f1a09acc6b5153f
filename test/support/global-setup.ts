import { Client } from 'pg'
import type { TestProject } from 'vitest/node'
import { findServer } from './postgres'

declare module 'vitest' {
  interface ProvidedContext {
    readonly serverUrl: string
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await findServer()
  const client = new Client({ connectionString: server.url })
  await client.connect()
  const { rows } = await client.query<{ version: string }>(`select current_setting('server_version') as version`)
  await client.end()
  console.log(`Postgres for the tests: ${rows[0]?.version} from ${server.origin}`)
  project.provide('serverUrl', server.url)
  return () => server.stop()
}
