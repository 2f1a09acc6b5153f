import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test, vi } from 'vitest'
import { startEmbeddedPostgres } from '../../../scripts/embedded-postgres'
import { explainStart } from '../../../scripts/server-process'
import { serverUser } from '../../../scripts/server-home'
import { rejection } from '../../support/ledger'

function newFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'unique-text-start-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  return folder
}

/** What becomes of a program with this text and these rights. */
async function started(text: string, mode: number): Promise<string> {
  const program = path.join(newFolder(), 'initdb')
  writeFileSync(program, text, { mode })
  return String(explainStart(await rejection(promisify(execFile)(program)), 'initdb'))
}

test('a program whose loader is not there is said to be for glibc', async () => {
  expect(await started('#!/no/such/loader\n', 0o755)).toMatch(/Cannot run initdb \(ENOENT\).*glibc.*TEST_DATABASE_URL/)
})

test('a program that may not be run is said to be in a folder that lets none run', async () => {
  expect(await started('#!/bin/sh\n', 0o644)).toMatch(/Cannot run initdb \(EACCES\).*noexec.*TMPDIR/)
})

test('a program that runs and fails says itself why', async () => {
  expect(await started('#!/bin/sh\necho why >&2; exit 3\n', 0o755)).toMatch(/^Error: Command failed: .*\nwhy/)
})

test.runIf(process.getuid?.() === 0)('root without the user postgres and without useradd hears what to make', () => {
  vi.stubEnv('PATH', newFolder())
  onTestFinished(() => void vi.unstubAllEnvs())
  expect(serverUser).toThrow(/no user "postgres", and useradd did not make it.*another user/)
})

test('a temp folder that is not there is named', async () => {
  vi.stubEnv('TMPDIR', '/no/such/folder')
  onTestFinished(() => void vi.unstubAllEnvs())
  await expect(startEmbeddedPostgres()).rejects.toThrow('/no/such/folder is not there. Make it, or set TMPDIR')
})
