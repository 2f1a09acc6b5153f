import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
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
  // The tarball is made once for all files, and by the gate once for all runs: test/package/workspace.ts.
  const own = process.env['TEST_PACKED'] === undefined
  const packed = (process.env['TEST_PACKED'] ??= await mkdtemp(path.join(tmpdir(), 'unique-text-packed-')))
  return async () => {
    if (own) await rm(packed, { recursive: true })
    await server.stop()
  }
}
