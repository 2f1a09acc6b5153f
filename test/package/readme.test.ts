import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase, inDatabase } from '../support/databases'
import { type Lines, printedBy, readExample, readLines, unmarkedBlocks } from './readme'
import { makeProject, type Neighbourhood, openBesideOwnPackages, type Project, succeed } from './workspace'

const PATIENCE = { timeout: 240_000 }
const ROOT = path.join(import.meta.dirname, '../..')
const DATABASES = { start: `T readme ${process.pid}`, lines: `T readme lines ${process.pid}` }

const document = await readFile(path.join(ROOT, 'README.md'), 'utf8')
const readme = readExample(document)

let workspace: Neighbourhood

beforeAll(async () => {
  workspace = await openBesideOwnPackages()
  for (const name of Object.values(DATABASES)) await createDatabase(inject('serverUrl'), name)
}, PATIENCE.timeout)

afterAll(async () => {
  for (const name of Object.values(DATABASES)) await dropDatabase(inject('serverUrl'), name)
  await workspace?.remove()
})

const typesOf = async (project: Project) => await project.run('tsc', ['-p', '.', '--noEmit'])
const RIGHT = { code: 0, stdout: '', stderr: '' }

test('a project with the tarball runs the quick start and the commands of README.md', PATIENCE, async () => {
  const project = await makeProject(workspace.installation, 'readme', {
    databaseUrl: inDatabase(inject('serverUrl'), DATABASES.start),
    files: readme.files,
  })
  const [step, ...none] = readme.steps
  const output = succeed(await project.run('bash', ['-euo', 'pipefail', '-c', step?.command ?? ''])).stdout
  const printed = printedBy(readme.files['main.ts'] ?? '')
  expect(printed).not.toBe('')
  expect(output).toContain(printed)
  expect(output).toMatch(/already adopted: nothing to do\..*\b0 errors/s)
  expect(none).toEqual([])
  expect(await typesOf(project)).toEqual(RIGHT)
})

/** What the lines of a document leave out. */
const programOf = (lines: readonly Lines[]): string => `
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import {
  Column,
  DataSource,
  Entity,
  type EntityManager,
  Index,
  JoinColumn,
  OneToOne,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  Raw,
} from 'typeorm'
import {
  countByText,
  deleteByText,
  existsByText,
  findOneByText,
  findOrCreate,
  insertOrFail,
  type OperationEvent,
  UniqueText,
  UniqueTextEntity,
  updateOrFail,
  upsertByText,
} from 'typeorm-unique-text'
import { findHolder, Name, rename, UniqueName } from 'typeorm-unique-text/names'
import { countWithin, NumberWithin } from 'typeorm-unique-text/numbers'
import { once, OnceToken } from 'typeorm-unique-text/once'
import { findOrCreateStream } from 'typeorm-unique-text/stream'
import { normalizer, Refusal, url } from 'typeorm-unique-text/normalizers'
import { Url } from 'typeorm-unique-text/url'
import { Page } from './ormconfig'

${lines.map(({ classes }) => classes).join('\n')}

async function main() {
  const entities = [Page, Link, Visit, Url, User, Comment, Bookmark, Article, Order, Invoice, Name, OnceToken]
  const dataSource = new DataSource({ type: 'postgres', url: process.env.DATABASE_URL, entities, synchronize: true })
  const { manager } = await dataSource.initialize()
${lines.map(({ body }) => `{\n${body}\n}`).join('\n')}
  await dataSource.destroy()
}

void main()
`

test(
  'the lines of README.md, operations.md, normalizers.md, url.md and numbers.md print what is beside them',
  PATIENCE,
  async () => {
    const names = ['README.md', 'docs/operations.md', 'docs/normalizers.md', 'docs/url.md', 'docs/numbers.md']
    const pages = names.map((name) => readFile(path.join(ROOT, name), 'utf8'))
    const lines = readLines((await Promise.all(pages)).join(''))
    expect(lines.map(({ name }) => name)).toEqual([
      'home',
      'operations',
      'upsert',
      'watch',
      'more',
      'normalizers',
      'isbn',
      'url',
      'prefix',
      'confirmed',
    ])
    const project = await makeProject(workspace.installation, 'lines', {
      databaseUrl: inDatabase(inject('serverUrl'), DATABASES.lines),
      files: { ...readme.files, 'lines.ts': programOf(lines) },
    })
    const { stdout } = succeed(await project.run('tsx', ['lines.ts']))
    expect(stdout.trim()).toBe(lines.map(({ output }) => output).join('\n'))
    expect(await typesOf(project)).toEqual(RIGHT)
  },
)

test('every block of README.md is run, but for the ones that install it and clone the repository', () => {
  expect(unmarkedBlocks(document)).toEqual([
    expect.stringMatching(/^npm install .*\n$/),
    expect.stringMatching(/^git clone .*\n.*npm ci && npm start\nnpm ci && npm test/),
  ])
})
