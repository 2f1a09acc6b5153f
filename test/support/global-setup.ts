import type { TestProject } from 'vitest/node'
import { serverVersion } from './databases'
import { findServer } from './postgres'

declare module 'vitest' {
  interface ProvidedContext {
    readonly serverUrl: string
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await findServer()
  console.log(`Postgres for the tests: ${await serverVersion(server.url)} from ${server.origin}`)
  project.provide('serverUrl', server.url)
  return () => server.stop()
}
