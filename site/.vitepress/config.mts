import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { defineConfig } from 'vitepress'

const REPOSITORY = 'https://github.com/typeorm-unique-text/typeorm-unique-text'
const page = (text: string, name: string) => ({ text, link: `/docs/${name}` })

const sidebar = [
  {
    text: 'Start',
    items: [
      { text: 'Quick start', link: '/' },
      { text: 'Try it in the page', link: '/site/try' },
      page('Tutorial', 'tutorial'),
      page('How it works', 'how-it-works'),
    ],
  },
  {
    text: 'Guides',
    items: [
      page('Operations', 'operations'),
      page('Normalizers', 'normalizers'),
      page("TypeORM's own calls", 'typeorm'),
      page('Nested objects', 'nested-objects'),
      page('A table of URLs', 'url'),
      page('Names across tables', 'names'),
      page('Numbers without gaps', 'numbers'),
      page('Work that runs once', 'once'),
      page('Existing tables', 'adopting'),
      page('Changed declarations', 'changing-a-declaration'),
      page('The doctor', 'doctor'),
      page('Backups', 'backup-and-restore'),
      page('Upgrading', 'upgrading'),
      page('Partitions and Citus', 'scale'),
      page('SQL and other languages', 'sql'),
      page('ES modules, Jest, Vitest', 'your-project'),
      page('Other libraries', 'libraries'),
      page('Recipes: NestJS, Fastify', 'recipes'),
    ],
  },
  {
    text: 'Reference',
    items: [
      page('Options', 'options'),
      page('Errors', 'errors'),
      page('Guarantees and limits', 'guarantees'),
      page('Permissions', 'security'),
      page('Platforms', 'platforms'),
      { text: 'API', link: '/site/api/' },
      { text: 'Changelog', link: '/CHANGELOG' },
    ],
  },
]

/** Pages for language models: https://llmstxt.org. */
async function writeIndex(root: string, outDir: string): Promise<void> {
  const listed = sidebar.map(async ({ text, items }) => {
    const lines = items.map(async (item) => {
      if (item.link.endsWith('/')) return `- [${item.text}](${item.link})`
      const source = await readFile(path.join(root, `${item.link}.md`), 'utf8')
      const about = source.split('\n\n').find((block) => /^[A-Z`@]/u.test(block)) ?? ''
      await writeFile(path.join(outDir, `${item.link}.md`), source)
      return `- [${item.text}](${item.link}.md): ${about.replaceAll('\n', ' ')}`
    })
    return `## ${text}\n\n${(await Promise.all(lines)).join('\n')}\n`
  })
  const head =
    '# typeorm-unique-text\n\n> Unique text of any length in PostgreSQL for TypeORM: exact, race-free find-or-create.\n'
  await writeFile(path.join(outDir, 'llms.txt'), [head, ...(await Promise.all(listed))].join('\n'))
}

export default defineConfig({
  title: 'typeorm-unique-text',
  description: 'Unique text of any length in PostgreSQL, for TypeORM',
  srcDir: '..',
  srcExclude: ['{bench,examples,maintainers,migrations,scripts,src,test,dist,mutation,.github,.data}/**'],
  rewrites: { 'README.md': 'index.md' },
  outDir: './dist',
  cleanUrls: false,
  lastUpdated: false,
  markdown: {
    // The label of a block, as in ```json [package.json], is the name of its file.
    config: ({ renderer: { rules } }) => {
      const { fence } = rules
      rules.fence = (tokens, index, ...rest) => {
        const [, name] = /\[(\S+)\]/u.exec(tokens[index]?.info ?? '') ?? []
        return `${name === undefined ? '' : `<p class="file-name">${name}</p>`}${fence?.(tokens, index, ...rest)}`
      }
    },
  },
  transformPageData: ({ relativePath, frontmatter }) => {
    if (relativePath === 'index.md') frontmatter['pageClass'] = 'home'
  },
  // The pages are outside of this folder, and Node.js finds no Vue from there.
  vite: {
    // Its files lie beside the module that loads them.
    optimizeDeps: { exclude: ['@electric-sql/pglite'] },
    plugins: [
      {
        name: 'vue-for-pages',
        enforce: 'pre',
        resolveId: (id, _importer, { ssr }) => (ssr && /^vue(?:\/|$)/u.test(id) ? { id, external: true } : null),
      },
    ],
  },
  buildEnd: ({ srcDir, outDir }) => writeIndex(srcDir, outDir),
  themeConfig: {
    sidebar,
    nav: [
      { text: 'Tutorial', link: '/docs/tutorial' },
      { text: 'Errors', link: '/docs/errors' },
      { text: 'API', link: '/site/api/' },
    ],
    outline: [2, 3],
    search: {
      provider: 'local',
      options: {
        // A reader who searches for a word wants the page that explains it before each interface that has the word.
        miniSearch: {
          searchOptions: { boostDocument: (id: string) => (id.includes('/site/api/') ? 0.1 : 1) },
        },
      },
    },
    socialLinks: [{ icon: 'github', link: REPOSITORY }],
  },
})
