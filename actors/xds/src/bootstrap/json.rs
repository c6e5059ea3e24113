//! JSON with the paths of its fields, so that what is wrong is named by its place. What has to be where is others'.

use serde_json::{Map, Value};

use super::BootstrapError;

/// A value and where it is.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> At<'a> {
    /// The whole document.
    pub fn root(value: &'a Value) -> At<'a> {
        At { path: String::new(), value }
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        if self.path.is_empty() { "the document" } else { &self.path }
    }

    /// The value.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// Something is wrong here.
    pub fn fault(&self, fault: impl Into<String>) -> BootstrapError {
        BootstrapError::Field { path: self.path().to_owned(), fault: fault.into() }
    }

    /// Something is wrong with the field of this name, which may not be there.
    pub fn fault_of(&self, name: &str, fault: impl Into<String>) -> BootstrapError {
        BootstrapError::Field { path: self.path_of(name), fault: fault.into() }
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn is_no(&self, wanted: &str) -> BootstrapError {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.fault(format!("is {found}: make it {wanted}"))
    }

    /// The fields of an object.
    ///
    /// # Errors
    /// It is no object.
    pub fn fields(&self) -> Result<&'a Map<String, Value>, BootstrapError> {
        self.value.as_object().ok_or_else(|| self.is_no("an object"))
    }

    /// The field of this name; one that is null is as one that is not there.
    ///
    /// # Errors
    /// This is no object.
    pub fn field(&self, name: &str) -> Result<Option<At<'a>>, BootstrapError> {
        let value = self.fields()?.get(name).filter(|value| !value.is_null());
        Ok(value.map(|value| At { path: self.path_of(name), value }))
    }

    /// The field of this name.
    ///
    /// # Errors
    /// This is no object, or there is none, with this to say then.
    pub fn required(&self, name: &str, remedy: &str) -> Result<At<'a>, BootstrapError> {
        self.field(name)?.ok_or_else(|| self.fault_of(name, remedy))
    }

    /// The items of a list.
    ///
    /// # Errors
    /// It is no list.
    pub fn items(&self) -> Result<Vec<At<'a>>, BootstrapError> {
        let items = self.value.as_array().ok_or_else(|| self.is_no("a list"))?;
        let item = |(n, value)| At { path: format!("{}[{n}]", self.path), value };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// A string.
    ///
    /// # Errors
    /// It is no string.
    pub fn text(&self) -> Result<&'a str, BootstrapError> {
        self.value.as_str().ok_or_else(|| self.is_no("a string"))
    }

    /// The string in the field of this name. One that is empty is as one that is not there.
    ///
    /// # Errors
    /// This is no object, or the field is no string.
    pub fn text_of(&self, name: &str) -> Result<Option<&'a str>, BootstrapError> {
        let text = self.field(name)?.map(|field| field.text()).transpose()?;
        Ok(text.filter(|text| !text.is_empty()))
    }
}
