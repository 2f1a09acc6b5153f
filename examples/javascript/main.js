const { findOneByText, findOrCreate, findOrCreateMany } = require('typeorm-unique-text')
const { dataSource } = require('./data-source')
const { Page } = require('./page')

async function main() {
  const { manager } = await dataSource.initialize()

  const first = await findOrCreate(manager, Page, { url: 'HTTP://Example.com:80/a/../b', title: 'First' })
  console.log(first.entity.url, first.created)

  const again = await findOrCreate(manager, Page, { url: 'http://example.com/b' })
  console.log(again.entity.title, again.created)

  // Many at once: the results are in the order of the input, and a bad row fails alone.
  for (const result of await findOrCreateMany(manager, Page, [{ url: 'http://example.com/c' }, { url: 'not a URL' }])) {
    console.log('entity' in result ? result.entity.url : result.error.name)
  }

  const found = await findOneByText(manager, Page, { url: 'http://EXAMPLE.com/c' })
  console.log(found?.url)
  await dataSource.destroy()
}

void main()
